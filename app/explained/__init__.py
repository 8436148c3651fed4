"""What happens in an answer, told step by step beside the panels, for learners."""
