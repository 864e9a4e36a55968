package soak

import (
	"net/netip"
	"slices"
	"testing"
)

func TestParseListeners(t *testing.T) {
	const text = `LISTEN 0      4096      198.18.0.1:6653       0.0.0.0:*
LISTEN 0      4096       127.0.0.1:8080       0.0.0.0:*
LISTEN 0      4096               *:7443             *:*
UNCONN 0      0       0.0.0.0%eth0:68         0.0.0.0:*
UNCONN 0      0      [fe80::1]%lo:546            [::]:*
`
	got, err := parseListeners(text)
	if err != nil {
		t.Fatal(err)
	}
	var want []netip.AddrPort
	for _, a := range []string{"198.18.0.1:6653", "127.0.0.1:8080", "127.0.0.1:7443", "127.0.0.1:68", "[fe80::1]:546"} {
		want = append(want, netip.MustParseAddrPort(a))
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if _, err := parseListeners("nonsense\n"); err == nil {
		t.Error("nonsense was read")
	}
}
