package latency

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// Settings are what the configuration says.
type Settings struct {
	// Quota is the share of a link's capacity that a class has guaranteed which
	// names no rate.
	Quota float64
	// Interval is the time between two readings of counters.
	Interval time.Duration
	// Timeout bounds the provisioning of one class.
	Timeout time.Duration
	// Settle is how long after a start paths are left as they were, until the
	// network has been discovered again.
	Settle time.Duration
	// Databases says where the switches' databases are.
	Databases Databases
}

func (t Settings) withDefaults() Settings {
	t.Quota = cmp.Or(t.Quota, 0.05)
	t.Interval = cmp.Or(t.Interval, 5*time.Second)
	t.Timeout = cmp.Or(t.Timeout, 10*time.Second)
	t.Settle = cmp.Or(t.Settle, 15*time.Second)
	return t
}

// Databases says where the switches' databases are.
type Databases struct {
	// Template is where a switch's database is, with {address} for the address that
	// the switch connects from and {name} for its name. Empty: only those of Switches.
	Template string
	// Switches are databases of single switches.
	Switches map[openflow.DatapathID]string
	// Names are the switches' names.
	Names map[openflow.DatapathID]string
	TLS   *tls.Config
}

// target is where a switch's database is.
func (s *Service) target(d openflow.DatapathID) (string, error) {
	db := &s.settings.Databases
	if t, ok := db.Switches[d]; ok {
		return t, nil
	}
	if db.Template == "" {
		return "", fmt.Errorf("switch %v: it is not known where its database is: set ovsdb.address, or ovsdb.switches", d)
	}
	return ovsdb.Expand(db.Template, s.fabric.Address(d), db.Names[d])
}
