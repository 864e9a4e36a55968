// Package cinema contains Cinema's live tests: real Open vSwitch, the real programs, and
// Chromium. Tests that only count packets use the gateways of rawgateway_test.go, where reading
// may start.
package cinema
