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

// Drops counts packets that this machine has dropped because it was too slow, and not the network
// in the lab. A measurement that must lose nothing checks that there are none.
type Drops struct {
	// Sockets counts packets that found a receive buffer full: those of applications, and those by
	// which switches that forward in user space receive their packets.
	Sockets uint64
	// Backlog counts packets that found a queue of the kernel between virtual cables full, on the
	// whole machine.
	Backlog uint64
}

// Since returns what has been dropped since an earlier count.
func (d Drops) Since(earlier Drops) Drops {
	return Drops{Sockets: d.Sockets - earlier.Sockets, Backlog: d.Backlog - earlier.Backlog}
}

// Plus returns the sum of both.
func (d Drops) Plus(other Drops) Drops {
	return Drops{Sockets: d.Sockets + other.Sockets, Backlog: d.Backlog + other.Backlog}
}

// CountDrops counts what this machine, and the sockets in a lab that are open now, have dropped so
// far.
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

// socketMemory matches what ss prints of a socket's memory; d is the number of dropped packets.
var socketMemory = regexp.MustCompile(`skmem:\([^)]*,d([0-9]+)\)`)

func socketDrops(text string) (sum uint64) {
	for _, found := range socketMemory.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseUint(found[1], 10, 64) // It consists of digits; an overflow counts as the largest number.
		sum += n
	}
	return sum
}

// backlogDrops returns the sum of the second column of /proc/net/softnet_stat, which has a line for
// each processor.
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
