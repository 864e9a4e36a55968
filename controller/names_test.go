package controller

import (
	"crypto/ed25519"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// TestNameService checks that the controller has a name service of its own if its address is
// configured, and that the API shows its work.
func TestNameService(t *testing.T) {
	cfg := testConfig(t, "memory")
	config.Of[*mobilityfirst.Section](cfg).GNRS.Listen = config.Address{AddrPort: netip.MustParseAddrPort("127.0.0.1:0")}
	r := run(t, cfg)
	var st nameservice.Status
	eventually(t, "the name service runs", func() bool { r.get(t, "/api/v1/gnrs/status", &st); return st.Listen != "" })
	c, err := gnrs.Dial(netip.MustParseAddrPort(st.Listen))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	at := gnrswire.AddrPortOf(netip.MustParseAddrPort("192.0.2.1:5028"))
	signed, err := record.Sign(key, 7, time.Now().Add(time.Hour), at)
	if err != nil {
		t.Fatal(err)
	}
	// The first new name of a client takes two requests: the first gets the cookie for the second.
	if err := c.Write(t.Context(), signed); err != nil {
		t.Fatal(err)
	}
	if found, err := c.Lookup(t.Context(), record.NameOfOwner(key)); err != nil || found.Number != 7 {
		t.Errorf("%+v, %v", found, err)
	}
	if r.get(t, "/api/v1/gnrs/status", &st); st.Names != 1 || st.Lookups != 1 || st.Writes != 2 || st.Answers["done"] != 2 {
		t.Errorf("status %+v", st)
	}
}
