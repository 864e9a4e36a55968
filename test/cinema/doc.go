// Package cinema has Cinema's live tests: real Open vSwitch, the real programs, and
// Chromium. What gateways are made of that only counts packets is in rawgateway_test.go.
package cinema
