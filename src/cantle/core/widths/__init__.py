"""How wide shall a moldable task run, so that the whole workflow ends sooner?"""
