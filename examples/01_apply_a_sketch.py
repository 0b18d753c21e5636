"""Merge a sketch into a text and print the difference: `python examples/01_apply_a_sketch.py`.

The sketch leaves nothing open, so the model is never asked; a scripted one stands in for it.
"""

import asyncio

from etude.assistant.apply.engine import apply
from etude.assistant.apply.request import ApplyRequest, ApplyResult
from etude.edits import unified_diff
from etude.models.scripted import ScriptedModel

FILE = """class Basket:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)

    def total(self):
        return sum(item.price for item in self.items)
"""

SKETCH = """```python
class Basket:
    # ... existing code ...

    def total(self, discount=0):
        return sum(item.price for item in self.items) - discount
```"""


async def main() -> None:
    request = ApplyRequest(path="basket.py", text=FILE, sketch=SKETCH)
    async for event in apply(request, ScriptedModel()):
        if isinstance(event, ApplyResult) and event.patch:
            print(unified_diff("basket.py", FILE, event.patch.apply(FILE)), end="")
        elif isinstance(event, ApplyResult) and event.abstention:
            print(f"nothing was changed: {event.abstention.message}")


if __name__ == "__main__":
    asyncio.run(main())
