package hosts_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// TestRestlessHosts checks that a host which moves back and forth is listed with its count, and
// that a single move or old moves do not count.
func TestRestlessHosts(t *testing.T) {
	table := open(hosts.Options{})
	now := time.Now()
	saw(table, macOf(2), 1, 1, now)
	saw(table, macOf(2), 2, 1, now.Add(time.Second))
	for i := range 12 {
		saw(table, macOf(1), openflow.DatapathID(1+i%2), 1, now)
		now = now.Add(time.Second)
	}
	got := table.Flapping(10, now)
	if len(got) != 1 || got[0].Host.MAC != macOf(1) || got[0].Times != 11 || got[0].Elsewhere != (topology.PortRef{Switch: 1, Port: 1}) {
		t.Errorf("%+v", got)
	}
	if got := table.Flapping(10, now.Add(time.Hour)); len(got) > 0 {
		t.Errorf("an hour later: %+v", got)
	}
	saw(table, macOf(1), 1, 1, now.Add(time.Hour))
	if got := table.Flapping(2, now.Add(time.Hour)); len(got) > 0 {
		t.Errorf("a single move an hour later: %+v", got)
	}
}

// TestRestlessByRefusedClaims checks that refused claims to a host's address count, too.
func TestRestlessByRefusedClaims(t *testing.T) {
	d := newClaimTest(t, hosts.Options{})
	for range 5 {
		d.claims(1, victimIP, other)
		d.HandleAnswer(d.headers(1, victimIP), home, d.now)
	}
	if got := d.Flapping(5, d.now); len(got) != 1 || got[0].Elsewhere != other || got[0].Host.At != home {
		t.Errorf("%+v", got)
	}
}
