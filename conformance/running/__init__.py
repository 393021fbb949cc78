"""How a run selects its cases, shares the target among workers, and judges each case."""
