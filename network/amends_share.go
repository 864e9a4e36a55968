package network

import "slices"

// note takes note of one more that is to be asked. Where one more has no place, another of
// the same port, of the same switch or of all gives way: the oldest of where most are, by
// the switch and port of who claims, then by the switch of who is to be asked. So claims
// of hosts that somebody has made up push out each other, and nobody else's.
func (a *amends) note(m *amend) {
	a.mu.Lock()
	defer a.mu.Unlock()
	atSwitch := func(o *amend) bool { return o.by.Switch == m.by.Switch }
	atPort := func(o *amend) bool { return o.by == m.by }
	switch {
	case a.count(atPort) >= maxAmendsPerPort:
		a.giveWay(atPort)
	case a.count(atSwitch) >= maxAmendsPerSwitch:
		a.giveWay(atSwitch)
	case len(a.open) >= maxAmends:
		a.giveWay(func(*amend) bool { return true })
	}
	a.open = append(a.open, m)
}

func (a *amends) count(among func(*amend) bool) (n int) {
	for _, m := range a.open {
		if among(m) {
			n++
		}
	}
	return n
}

// giveWay drops one of some, of which there is at least one; the mutex is held.
func (a *amends) giveWay(among func(*amend) bool) {
	for _, level := range []func(*amend) PortRef{
		func(m *amend) PortRef { return PortRef{Switch: m.by.Switch} },
		func(m *amend) PortRef { return m.by },
		func(m *amend) PortRef { return PortRef{Switch: m.Host.At.Switch} },
	} {
		wider, most := among, mostly(a.open, among, level)
		among = func(m *amend) bool { return wider(m) && level(m) == most }
	}
	i := slices.IndexFunc(a.open, among)
	a.open = slices.Delete(a.open, i, i+1)
}

// mostly is where most of some are.
func mostly(all []*amend, among func(*amend) bool, where func(*amend) PortRef) (most PortRef) {
	number := map[PortRef]int{}
	for _, m := range all {
		if !among(m) {
			continue
		}
		at := where(m)
		if number[at]++; number[at] > number[most] {
			most = at
		}
	}
	return most
}
