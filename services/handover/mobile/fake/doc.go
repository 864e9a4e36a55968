// Package fake simulates the surroundings of a mobile device in tests: wires with a DHCP server
// and a gateway behind them, and a datapath that only records its calls.
//
// Everything runs by timers and channels, so it works with the clock of testing/synctest.
package fake
