package packetsocket

import (
	"bytes"
	"testing"

	"golang.org/x/net/bpf"
)

// udp returns a frame with UDP to a port, with words of IP options and the given fragment field.
func udp(port uint16, options int, fragment uint16) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 8, 0)
	b = append(b, byte(0x45+options), 0, 0, byte(28+4*options), 0, 0, byte(fragment>>8), byte(fragment), 64, 17, 0, 0)
	b = append(b, 10, 0, 0, 1, 10, 0, 0, 2)
	b = append(b, make([]byte, 4*options)...)
	return append(b, 0, 67, byte(port>>8), byte(port), 0, 8, 0, 0)
}

func TestUDPTo(t *testing.T) {
	vm, err := bpf.NewVM(UDPTo(68))
	if err != nil {
		t.Fatal(err)
	}
	tcp, v6 := udp(68, 0, 0), udp(68, 0, 0)
	tcp[23], v6[12], v6[13] = 6, 0x86, 0xdd
	for _, c := range []struct {
		what  string
		frame []byte
		want  bool
	}{
		{"UDP to the port", udp(68, 0, 0), true},
		{"with options, not to be fragmented", udp(68, 3, 0x4000), true},
		{"to another port", udp(67, 0, 0), false},
		{"to another port, with options", udp(67, 3, 0), false},
		{"first fragment", udp(68, 0, 0x2000), false},
		{"later fragment", udp(68, 0, 1), false},
		{"TCP", tcp, false},
		{"IPv6", v6, false},
		{"short", udp(68, 0, 0)[:30], false},
	} {
		n, err := vm.Run(c.frame)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if passes := n >= len(c.frame); passes != c.want {
			t.Errorf("%s: %d bytes pass, want all: %v", c.what, n, c.want)
		}
	}
}
