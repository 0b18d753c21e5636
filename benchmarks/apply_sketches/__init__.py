"""Sketches as models and people write them, made from a true edit; seeded, so the same each time.

Every maker takes (Subject, random.Random) and returns a Sketch, or None where the style does not suit
the edit. Makers know nothing of any engine. What should be refused is in `refusals.py`.

What `unique_anchor` promises — a careful person with only the file and the sketch could place each part at
exactly one place and knows what is replaced. In detail, and decided from the text alone:

- Nothing is missing. Every changed region lies inside one shown part, between kept lines (or at the end of
  the file); an elision stands only for lines that did not change.
- Parts with elisions (elided context, several hunks, sloppy words, deletion, import and change): the kept
  lines of all parts, in order, can be laid on the file in exactly one way (`one_placement`: stripped lines,
  blank ones left out, indentation not counted). For reordered parts each part alone must have one place.
- Functions shown whole: the name (with its class where the class is shown) is defined once in the file. With
  elisions inside, the kept lines must also have one placement inside the old function.
- Diffs: the old side of all hunks, in order, has one placement; line numbers are not trusted.
- SEARCH/REPLACE: each SEARCH text stands at one place of the file; a drifted line may stand for any line.
- A removal shown only by absence is small (`drops_silently`); elsewhere the sketch names it or shows it with "-".
- No shown line of the file looks like an elision itself.

A sketch without the promise can still be applied rightly (by likeness, by meaning); it may be abstained from.
"""
