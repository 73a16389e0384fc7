"""Evidence for others: receipts of audits that somebody else can check."""

from dpaudit.receipts.checks import receipt_of_cases, receipt_of_check
from dpaudit.receipts.combining import Combined, combine
from dpaudit.receipts.form import Case, CheckReceipt, InvalidReceipt, Receipt, read_receipt
from dpaudit.receipts.making import receipt_of
from dpaudit.receipts.registering import RegisteredPlan, read_plan, register
from dpaudit.receipts.verifying import Check, Verification, verify

__all__ = [
    "Case",
    "Check",
    "CheckReceipt",
    "Combined",
    "InvalidReceipt",
    "Receipt",
    "RegisteredPlan",
    "Verification",
    "combine",
    "read_plan",
    "read_receipt",
    "receipt_of",
    "receipt_of_cases",
    "receipt_of_check",
    "register",
    "verify",
]
