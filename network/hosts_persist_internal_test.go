package network

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// TestHostsThatComeAndGoFillNoDisk checks that the hosts that a switch invents for some time do
// not fill the disk, and do not keep a host elsewhere from being stored.
func TestHostsThatComeAndGoFillNoDisk(t *testing.T) {
	t.Parallel()
	table := hosts.New(hosts.Options{Edge: func(PortRef) bool { return true }, TrackChanges: true})
	written := switchLimiter{perSwitch: persistRatePerSwitch, overall: persistRateTotal}
	began := time.Now()
	const during = 10 * time.Minute
	made, hostile := 0, 0
	saw := func(mac int, at PortRef, now time.Time) {
		table.Learn(&packet.Headers{EthSrc: openflow.MAC{2, byte(mac >> 24), byte(mac >> 16), byte(mac >> 8), byte(mac)}}, at, now)
	}
	for at := time.Duration(0); at < during; at += persistInterval {
		now := began.Add(at)
		for range 1000 {
			made++
			saw(made, PortRef{Switch: 1, Port: uint32(made % 48)}, now)
		}
		honest := PortRef{Switch: 2, Port: uint32(1 + at/persistInterval)} // it moves each time
		saw(1<<30, honest, now)
		notes := table.UnsavedChanges(func(d openflow.DatapathID) bool { return written.allow(d, now) })
		kept := false
		for _, n := range notes {
			if kept = kept || n.At == honest; n.At.Switch == 1 {
				hostile++
			}
		}
		if !kept {
			t.Fatalf("after %v the honest host was not kept", at)
		}
		table.MarkSaved(notes)
	}
	if limit := hosts.DefaultMaxPerSwitch + int(during/persistRatePerSwitch.interval); hostile > limit || hostile < limit/2 {
		t.Errorf("%d changes of %d hosts were written, want no more than %d", hostile, made, limit)
	}
}
