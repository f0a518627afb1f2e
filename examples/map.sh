#!/usr/bin/env bash
# One command, many values: what GNU parallel, xargs and job arrays are used for.
set -euo pipefail

echo "== a range, as in a job array"
cantle map 'echo "task {#} has seed {}"' --range 001-004 --name seeds -o out/seeds --quiet
cantle logs out/seeds seeds.3

echo "== values that are hard to quote arrive as they are"
printf '%s\n' "it's" '$HOME "and" `id`' '*  *' > values.txt
cantle map "printf 'in quotes: <%s>\n' '{}' | cat" --lines values.txt --name hard -o out/hard --quiet
for task in hard.1 hard.2 hard.3; do cantle logs out/hard "$task"; done

echo "== a table with named fields; braces that are no field stay"
printf 'mass,charge\n2,-1\n5,3\n' > grid.csv
cantle map "echo {mass} {charge} | awk '{print \$1 * \$2}'" --csv grid.csv --name fit -o out/fit --quiet
cantle logs out/fit fit.2

echo "== as many arguments as the program wants, and no shell"
cantle map --argv --range 7 --name plain -o out/plain --quiet -- echo 'no $HOME, no *' {}
cantle logs out/plain plain.1
