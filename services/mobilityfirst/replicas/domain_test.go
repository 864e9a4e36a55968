package replicas

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

func guid(draw *rand.Rand) (name frame.GUID) {
	for i := range name {
		name[i] = byte(draw.Uint32())
	}
	return name
}

// domains returns the names of some domains.
func domains(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("domain", i))
	}
	return names
}

// A name is kept by K different domains, or by all; a new domain takes over names, and no other
// name moves.
func TestKeepers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		k := rapid.IntRange(1, 7).Draw(t, "k")
		all := domains(rapid.IntRange(1, 20).Draw(t, "domains"))
		name, place := guid(draw), Place(all...)
		before := place.Keepers(k, name)
		if fewer := place.Keepers(k-1, name); !slices.Equal(fewer, before[:len(fewer)]) {
			t.Fatalf("kept by %v, and by %v with one replica less", before, fewer)
		}
		if slices.Sort(before); len(slices.Compact(before)) != min(k, len(all)) {
			t.Fatalf("kept by %v of %d domains, k %d", before, len(all), k)
		}
		added := len(all)
		after := Place(append(all, "added")...).Keepers(k, name)
		for _, i := range after {
			if i != added && !slices.Contains(before, i) {
				t.Errorf("kept by %v, and when one is added by %v", before, after)
			}
		}
	})
}

// Names are spread evenly.
func TestKeepersAreEven(t *testing.T) {
	const there, names, k = 12, 60_000, 5
	draw, place := rand.New(rand.NewPCG(1, 2)), Place(domains(there)...)
	of := make([]int, there)
	for range names {
		for _, i := range place.Keepers(k, guid(draw)) {
			of[i]++
		}
	}
	want := names * k / there
	for i, n := range of {
		if n < want*95/100 || n > want*105/100 {
			t.Errorf("domain %d keeps %d names, want about %d: %v", i, n, want, of)
		}
	}
}

func TestParseDomain(t *testing.T) {
	if d, err := ParseDomain("west=192.0.2.1:5001"); err != nil || d != (Domain{"west", netip.MustParseAddrPort("192.0.2.1:5001")}) {
		t.Errorf("%+v, %v", d, err)
	}
	for _, text := range []string{"", "west", "=192.0.2.1:5001", "west=192.0.2.1", "west=192.0.2.1:0", "west=0.0.0.0:5001", "west=host:5001"} {
		if d, err := ParseDomain(text); !errors.Is(err, ErrDomains) {
			t.Errorf("%q: %+v, %v", text, d, err)
		}
	}
}

// Domains that cannot form a service are refused.
func TestRefused(t *testing.T) {
	at := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, n}), 5001) }
	two := []Domain{{"a", at(1)}, {"b", at(2)}}
	for name, o := range map[string]Options{
		"without itself": {Self: "c", Domains: two},
		"a name twice":   {Self: "a", Domains: append(two, Domain{"a", at(3)})},
		"a place twice":  {Self: "a", Domains: append(two, Domain{"c", at(2)})},
		"nowhere":        {Self: "a", Domains: append(two, Domain{"c", netip.MustParseAddrPort("0.0.0.0:5001")})},
		"kept by none":   {Self: "a", Domains: two, K: -1},
		"no domains":     {Self: "a"},
	} {
		if _, err := New(o); !errors.Is(err, ErrDomains) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
