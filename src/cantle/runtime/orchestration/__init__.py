"""How does a conductor get into a batch job, and what is known of it from outside?"""
