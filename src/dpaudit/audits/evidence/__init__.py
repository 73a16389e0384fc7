"""The numbers behind the figures and pages of an audit, computed from its scores."""

from dpaudit.audits.evidence.collecting import collect_evidence, fitted_mu

__all__ = ["collect_evidence", "fitted_mu"]
