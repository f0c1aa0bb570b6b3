"""Events, and a budget if there is one, to a Diagnosis."""
