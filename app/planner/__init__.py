"""The memory planner: what a model would take and reach, before it is loaded or downloaded."""
