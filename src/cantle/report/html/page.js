"use strict";
// Draws the charts when they come into view for the first time, in the shade that the reader has, and lets steps be hidden.
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const shades = {
    light: { ink: "#1d2733", soft: "#5b6875", rule: "#dfe4ea" },
    dark: { ink: "#e4e9ee", soft: "#9aa7b4", rule: "#2d3640" },
  };
  let shade = prefersDark.matches ? "dark" : "light";
  const drawn = new Map();

  function models(view) {
    const found = [];
    const add = (model) => { if (model && !found.includes(model)) found.push(model); };
    const visit = (model) => {
      add(model);
      for (const child of model.children ?? []) visit(Array.isArray(child) ? child[0] : child);
    };
    visit(view.model);
    return found;
  }

  function paint(view) {
    const colour = shades[shade];
    for (const model of models(view)) {
      if (model.type !== "Figure" && model.type !== "Plot") continue;
      for (const part of [...model.left, ...model.below]) {
        if (!("axis_line_color" in part)) continue;
        part.setv({
          axis_line_color: colour.rule, axis_label_text_color: colour.soft, major_label_text_color: colour.ink,
          axis_label_text_font_style: "normal", axis_label_text_font_size: "12px", major_label_text_font_size: "12px",
          minor_tick_line_color: null,
        });
        if (part.major_tick_line_color != null) part.major_tick_line_color = colour.rule;
      }
      for (const part of [...model.center, ...model.renderers]) {
        if ("grid_line_color" in part) part.grid_line_color = colour.rule;
        if (part.name === "border") part.line_color = colour.rule;
        if (part.name === "chain" || part.name === "there") {
          part.glyph.line_color = colour.ink;
          if (part.nonselection_glyph?.setv) part.nonselection_glyph.setv({ line_color: colour.ink });
        }
      }
      for (const tool of model.toolbar?.tools ?? []) {
        if (tool.overlay?.name === "crosshair") tool.overlay.line_color = colour.soft;
      }
    }
  }

  function setShade(to) {
    shade = to;
    root.dataset.shade = to;
    for (const view of drawn.values()) paint(view);
  }

  async function draw(place) {
    if (drawn.has(place.id) || place.dataset.begun) return;
    place.dataset.begun = "1";
    const item = JSON.parse(document.getElementById(place.dataset.item).textContent);
    const manager = await Bokeh.embed.embed_item(item, place);
    const view = [...manager].find((each) => each.model.id === item.root_id) ?? [...manager][0];
    drawn.set(place.id, view);
    paint(view);
    place.dataset.drawn = "1";
  }

  function hide(button) {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(shown));
    const view = drawn.get(button.closest("[data-chart]").dataset.chart);
    if (!view) return;
    for (const model of models(view)) {
      for (const renderer of model.renderers ?? []) {
        if (renderer.name === "step:" + button.dataset.step) renderer.visible = shown;
      }
    }
  }

  root.dataset.shade = shade;
  prefersDark.addEventListener("change", (event) => setShade(event.matches ? "dark" : "light"));
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("shade").addEventListener("click", () => setShade(shade === "dark" ? "light" : "dark"));
    for (const button of document.querySelectorAll("button[data-step]")) {
      button.addEventListener("click", () => hide(button));
    }
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
    }, { rootMargin: "600px" });
    for (const place of document.querySelectorAll(".chart")) seen.observe(place);
  });
})();
