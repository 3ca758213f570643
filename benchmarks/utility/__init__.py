"""Accuracy at a certified epsilon: recipes on real data, what they reached, and the page that says
so.

python -m benchmarks.utility --list                      # recipes, their data sets and goals
python -m benchmarks.utility mnist --epsilon 1.2         # three runs; adds them to the results
python -m benchmarks.utility mnist --without-privacy     # the same recipe without privacy
python -m benchmarks.utility all --replace               # all that the page shows; about an hour
python -m benchmarks.utility page                        # docs/utility.md from the results

data.py       the data sets: which files, what is in them
recipe.py     what a recipe is
recipes/      one file each
plain.py      the same loop without privacy
accuracy.py   how a model is tested
run.py        runs a recipe, reads its ledger back, writes down what came out
results.py    what is written down, as files
published.py  what others reached
page.py, curves.py    docs/utility.md and its picture
"""
