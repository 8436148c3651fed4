"""The inference engine: text in, events out. Never imports Qt; this module never imports torch.

The face other packages use: `engine.session` (the `Session` protocol and `create_session`),
`engine.events`, `engine.config`.
"""

import os

# torch takes large pages for large tensors only if it is told so before it makes the first one;
# weights and the cache are then read some 10 % faster (Linux).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
