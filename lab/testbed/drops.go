package testbed

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/lab"
)

// Drops are packets that this machine has dropped because it was too slow, not the
// network in the lab: the witness of a measurement that must lose nothing.
type Drops struct {
	// Sockets found their receive buffer full: those of applications, and those by
	// which switches that forward in user space get their packets.
	Sockets uint64
	// Backlog is of the kernel's queues between virtual cables, of the whole machine.
	Backlog uint64
}

// Since is what has been dropped since an earlier count.
func (d Drops) Since(earlier Drops) Drops {
	return Drops{Sockets: d.Sockets - earlier.Sockets, Backlog: d.Backlog - earlier.Backlog}
}

// Plus is both together.
func (d Drops) Plus(other Drops) Drops {
	return Drops{Sockets: d.Sockets + other.Sockets, Backlog: d.Backlog + other.Backlog}
}

// CountDrops counts what sockets in a lab that are open now, and this machine, have
// dropped so far.
func CountDrops(ctx context.Context, l *lab.Lab) (d Drops, err error) {
	var places []Place
	for _, s := range l.Topology().Switches {
		places = append(places, l.Switch(s.Name))
	}
	for _, h := range l.Topology().Hosts {
		places = append(places, l.Host(h.Name))
	}
	for _, p := range places {
		out, err := p.Command(ctx, "ss", "-H", "-a", "-m", "--packet", "--udp").Output()
		if err != nil {
			return d, fmt.Errorf("count drops of sockets: %w", err)
		}
		d.Sockets += socketDrops(string(out))
	}
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return d, fmt.Errorf("count drops of the backlog: %w", err)
	}
	d.Backlog, err = backlogDrops(string(text))
	return d, err
}

// socketMemory is what ss prints of a socket's memory; d is what it has dropped.
var socketMemory = regexp.MustCompile(`skmem:\([^)]*,d([0-9]+)\)`)

func socketDrops(text string) (sum uint64) {
	for _, found := range socketMemory.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseUint(found[1], 10, 64) // digits; too many of them count as none
		sum += n
	}
	return sum
}

// backlogDrops sums the second column, which there is for each processor.
func backlogDrops(text string) (sum uint64, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("count drops of the backlog: a line of %d columns", len(fields))
		}
		n, err := strconv.ParseUint(fields[1], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("count drops of the backlog: %w", err)
		}
		sum += n
	}
	return sum, nil
}
