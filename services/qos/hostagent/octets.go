package hostagent

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Octets returns the number of bytes of IP packets that this network namespace has sent and
// received since it was created. No connection can have carried more.
func Octets() (uint64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, fmt.Errorf("what this host has carried: %w", err)
	}
	four, err := self.Netstat()
	if err != nil {
		return 0, fmt.Errorf("what this host has carried: %w", err)
	}
	six, err := self.Snmp6() // empty on a host without IPv6
	if err != nil {
		return 0, fmt.Errorf("what this host has carried by IPv6: %w", err)
	}
	var sum float64
	for _, n := range []*float64{four.InOctets, four.OutOctets, six.Ip6.InOctets, six.Ip6.OutOctets} {
		if n != nil {
			sum += *n
		}
	}
	return uint64(sum), nil
}
