package candidates

import (
	"net/netip"
	"strings"
	"testing"
)

const answer = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=ice-lite\r\n" +
	"m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\na=candidate:1 1 udp 2130706431 10.0.0.5 8460 typ host\r\n" +
	"a=candidate:1 2 udp 2130706431 10.0.0.5 8460 typ host\r\na=end-of-candidates\r\n" +
	"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:1\r\n"

func TestReplace(t *testing.T) {
	for _, c := range []struct {
		name, want string
		addresses  []netip.AddrPort
	}{
		{"none", answer, nil},
		{
			"two", strings.Replace(answer, "a=candidate:1 1 udp 2130706431 10.0.0.5 8460 typ host\r\na=candidate:1 2 udp 2130706431 10.0.0.5 8460 typ host\r\n",
				"a=candidate:1 1 udp 2130706431 203.0.113.7 3478 typ host\r\na=candidate:2 1 udp 2130706175 2001:db8::7 3478 typ host\r\n", 1),
			[]netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:3478"), netip.MustParseAddrPort("[2001:db8::7]:3478")},
		},
	} {
		got, err := Replace(answer, c.addresses)
		if err != nil || got != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.name, err, got, c.want)
		}
	}
	if got, err := Replace("no answer", []netip.AddrPort{netip.MustParseAddrPort("203.0.113.7:1")}); err == nil {
		t.Errorf("what is no answer gives %q", got)
	}
}
