"""Calls whose gradient the program defines: functions of autograd and custom operators."""
