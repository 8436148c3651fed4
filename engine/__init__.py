"""The inference engine: text in, events out. Never imports Qt; this module never imports torch.

The face other packages use: `engine.session` (the `Session` protocol and `create_session`),
`engine.events`, `engine.config`.
"""
