// Package network has the live tests of the module's package network: its rules, links and
// hosts on real Open vSwitch, and beside floods of messages.
package network
