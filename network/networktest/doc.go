// Package networktest runs package network in tests, against fake switches on loopback. The unit
// tests of network and its live tests in test/network share it. Start reading with Start.
package networktest
