// Package fake stands in for what is around a mobile device in tests: wires with a
// DHCP server and a gateway behind them, and a datapath that only remembers.
//
// Everything runs by timers and channels, so it works with the clock of
// testing/synctest.
package fake
