"""What a probe is made of: `node` runs it, `session` sends and judges, `requests` builds requests.

`members` and `transactional` have models of groups and of transactional producers.
"""
