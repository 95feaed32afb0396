"""Built-in experiments that are more than one problem with its default learners."""
