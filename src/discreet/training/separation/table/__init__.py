"""What each operation of ATen makes of records.

    elementwise     entry by entry
    along           along some axes, or over the last ones, or row by row of a batch
    products        matrix products and distances
    convolution, normalisation, sequences, losses, embedding: layers that are one operation
    joining         side by side, copies, gradients of views
    indexing        by tensors
    kinds           operations that are special in what they read, draw, fill or write

Nothing is assumed of an operation that is not here: its result is `Mixed`. Views have no rules:
what they hold follows from their memory. A rule names every tensor argument, those that may have
records and those that must be public. It counts axes from the left, except where an operation
broadcasts. Public operands that have an axis for records must be the same for every record. All
rules are tested against torch's operator database (tests/separation).
"""

from discreet.training.separation.table.along import RULES as _ALONG
from discreet.training.separation.table.convolution import RULES as _CONVOLUTION
from discreet.training.separation.table.elementwise import RULES as _ELEMENTWISE
from discreet.training.separation.table.embedding import RULES as _EMBEDDING
from discreet.training.separation.table.indexing import RULES as _INDEXING
from discreet.training.separation.table.joining import RULES as _JOINING
from discreet.training.separation.table.losses import RULES as _LOSSES
from discreet.training.separation.table.normalisation import RULES as _NORMALISATION
from discreet.training.separation.table.operands import Rule as _Rule
from discreet.training.separation.table.products import RULES as _PRODUCTS
from discreet.training.separation.table.sequences import RULES as _SEQUENCES

__all__ = ["RULES"]

RULES: dict[str, _Rule] = {
    **_ELEMENTWISE,
    **_ALONG,
    **_PRODUCTS,
    **_CONVOLUTION,
    **_NORMALISATION,
    **_SEQUENCES,
    **_LOSSES,
    **_EMBEDDING,
    **_JOINING,
    **_INDEXING,
}
"""By functional name, or by name and overload; `pointwise` is for all that torch tags so."""
