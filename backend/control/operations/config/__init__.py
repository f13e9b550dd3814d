"""Kinds of change that set a config, of topics and brokers.

`config_change`: kinds `topic_config` and `broker_config`, with `topic_config_rules` (KIP-405, KIP-950) and
`config_texts`. `toggle_bootstrap`: kind `toggle_bootstrap` (KIP-1023), with `config_precedence` (KIP-226) and
`toggle_texts`. `set_aside_removal`: a change of a broker's config that removes set-aside replica folders.
"""
