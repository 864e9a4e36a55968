package testbed

import (
	"net/netip"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	sent, answers, err := Probe{
		Client: localhost{}, Server: localhost{}, To: netip.MustParseAddrPort("127.0.0.1:42031"), Interval: 2 * time.Millisecond, For: 300 * time.Millisecond, Bytes: 64,
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sent < 30 || len(answers) != sent {
		t.Fatalf("%d answers to %d requests", len(answers), sent)
	}
	for i, a := range answers {
		if a.Request != i+1 || a.Took <= 0 || a.Took > 5*time.Second {
			t.Fatalf("answer %d: %+v", i+1, a)
		}
	}
}
