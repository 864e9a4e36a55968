package testbed

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"time"
)

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// Ping sends one echo request and returns the round-trip time.
func Ping(ctx context.Context, at Place, to netip.Addr) (time.Duration, error) {
	out, err := at.Command(ctx, "ping", "-n", "-c", "1", "-W", "2", to.String()).CombinedOutput()
	m := pingTime.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("ping %v: no answer (%w)", to, err)
	}
	ms, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return 0, fmt.Errorf("ping %v: %w", to, err)
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

// Pings sends n echo requests, one every few milliseconds, and returns the round-trip times in
// seconds of those that were answered.
func Pings(ctx context.Context, at Place, to netip.Addr, n int) (took []float64, err error) {
	out, err := at.Command(ctx, "ping", "-n", "-c", strconv.Itoa(n), "-i", "0.002", "-W", "2", to.String()).CombinedOutput()
	for _, m := range pingTime.FindAllSubmatch(out, -1) {
		ms, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return nil, fmt.Errorf("ping %v: %w", to, err)
		}
		took = append(took, ms/1e3)
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("ping %v: no answer (%w)", to, err)
	}
	return took, nil
}

var lladdr = regexp.MustCompile(`lladdr ([0-9a-f:]{17})`)

// Neighbour returns the MAC address that a host has for an address on its own
// network, or "through a router" if it has none.
func Neighbour(ctx context.Context, at Place, addr netip.Addr) (string, error) {
	out, err := at.Command(ctx, "ip", "neigh", "show", addr.String()).Output()
	if err != nil {
		return "", fmt.Errorf("neighbours: %w", err)
	}
	if m := lladdr.FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	return "through a router", nil
}
