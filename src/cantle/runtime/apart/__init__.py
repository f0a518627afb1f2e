"""How do functions of the user's run so that nothing that they do ends the run, or holds it up? In processes of their own."""
