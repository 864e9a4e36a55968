package flowsim

import "container/heap"

// tolerance is the error that sums may have, as a share of a link.
const tolerance = 1e-9

// subflow is a part of a transfer that takes one path.
type subflow struct {
	of     *transfer
	number int
	links  []int
	places []int   // its index among the subflows of each of its links
	weight float64 // relative weight of its rate on shared links
	rate   float64
	// bottleneck is a link that is full and on which no subflow has a higher level.
	bottleneck int

	carried float64 // by the time since
	since   float64

	changing, settled bool // used while rates are found
}

// link is a link that subflows share. most is the highest level of these subflows (see level).
type link struct {
	capacity   float64
	subflows   []onLink
	load, most float64

	carried float64 // by the time since
	since   float64

	touched bool // used while rates are found
	left    float64
	open    float64 // sum of the weights of subflows whose rates are open
	waiting int     // number of these
}

// onLink is a subflow on a link, with the index of the link among the subflow's.
type onLink struct {
	*subflow
	which int
}

// rates holds the rates of subflows on links.
type rates struct {
	links []link
	now   float64
	// dirty holds links whose rates may be wrong. changing holds subflows whose rates are being
	// found again.
	dirty    []int
	changing []*subflow
	shares   shares
	// changed is called for each subflow before its rate changes.
	changed func(*subflow)
}

// enter adds a subflow to its links. Its rate is zero until settle is called.
func (r *rates) enter(s *subflow) {
	s.places = make([]int, len(s.links))
	for i, l := range s.links {
		at := &r.links[l]
		s.places[i] = len(at.subflows)
		at.subflows = append(at.subflows, onLink{s, i})
	}
	s.since = r.now
	r.change(s)
}

// setWeight changes the weight of a subflow.
func (r *rates) setWeight(s *subflow, weight float64) {
	if s.weight != weight {
		r.change(s)
		s.weight = weight
	}
}

// leave removes a subflow from its links.
func (r *rates) leave(s *subflow) {
	s.advance(r.now)
	for i, l := range s.links {
		at := &r.links[l]
		r.touch(l)
		last := at.subflows[len(at.subflows)-1]
		at.subflows[s.places[i]] = last
		last.places[last.which] = s.places[i]
		at.subflows = at.subflows[:len(at.subflows)-1]
	}
	s.rate = 0
}

// settle finds the rates after subflows have been added or removed. It first finds those of the
// changed subflows. Then it also finds anew the rates of subflows that have lost their bottleneck
// because other rates have changed, and of subflows that have more than another one on that one's
// bottleneck, until no further subflow is affected. Most rates far from a change stay as they are.
func (r *rates) settle() {
	for {
		r.fill()
		before := len(r.changing)
		r.measure()
		for _, l := range r.dirty {
			for _, s := range r.links[l].subflows {
				r.checkBottleneck(s.subflow)
			}
		}
		if len(r.changing) == before {
			break
		}
	}
	for _, s := range r.changing {
		s.changing = false
	}
	for _, l := range r.dirty {
		r.links[l].touched = false
	}
	r.changing, r.dirty = r.changing[:0], r.dirty[:0]
}

// touch records that what a link carries will change.
func (r *rates) touch(l int) {
	at := &r.links[l]
	if at.touched {
		return
	}
	at.carried += at.load * (r.now - at.since)
	at.since = r.now
	at.touched = true
	r.dirty = append(r.dirty, l)
}

// change makes settle find a subflow's rate again.
func (r *rates) change(s *subflow) {
	if s.changing {
		return
	}
	s.advance(r.now)
	r.changed(s)
	s.changing = true
	r.changing = append(r.changing, s)
	for _, l := range s.links {
		r.touch(l)
	}
}

// level returns the subflow's rate divided by its weight. Fairness is about levels.
func (s *subflow) level() float64 { return s.rate / s.weight }

func (s *subflow) advance(now float64) {
	s.carried += s.rate * (now - s.since)
	s.since = now
}

// fill raises the rates that change, in proportion to their weights, until the links of each are
// full (progressive filling). All other rates stay.
func (r *rates) fill() {
	r.shares = r.shares[:0]
	for _, l := range r.dirty {
		at := &r.links[l]
		at.left, at.open, at.waiting = at.capacity, 0, 0
		for _, s := range at.subflows {
			if s.changing {
				at.open += s.weight
				at.waiting++
				s.settled = false
			} else {
				at.left -= s.rate
			}
		}
		if at.waiting > 0 {
			r.shares = append(r.shares, at.share(l))
		}
	}
	heap.Init(&r.shares)
	for len(r.shares) > 0 {
		least := r.shares[0]
		at := &r.links[least.link]
		switch now := at.share(least.link); {
		case at.waiting == 0:
			heap.Pop(&r.shares)
		case now.level > least.level: // settled subflows took less than their share, so more is left
			r.shares[0] = now
			heap.Fix(&r.shares, 0)
		default:
			heap.Pop(&r.shares)
			for _, s := range at.subflows {
				if s.changing && !s.settled {
					r.setRate(s.subflow, least)
				}
			}
		}
	}
}

// setRate sets the rate of a subflow to its share of a link.
func (r *rates) setRate(s *subflow, at share) {
	s.settled, s.rate, s.bottleneck = true, at.level*s.weight, at.link
	for _, l := range s.links {
		r.links[l].left -= s.rate
		r.links[l].open -= s.weight
		r.links[l].waiting--
	}
}

// measure adds up what the links with changed rates carry.
func (r *rates) measure() {
	for _, l := range r.dirty {
		at := &r.links[l]
		at.load, at.most = 0, 0
		for _, s := range at.subflows {
			at.load += s.rate
			at.most = max(at.most, s.level())
		}
	}
}

// checkBottleneck checks whether a subflow still has a bottleneck. If it has none, its own rate
// must be found again. If its rate has just been found, the rates of the subflows with a higher
// level on its presumed bottleneck must be found again instead.
func (r *rates) checkBottleneck(s *subflow) {
	if r.holds(s, s.bottleneck) {
		return
	}
	if s.changing {
		for _, other := range r.links[s.bottleneck].subflows {
			if other.level() > s.level()+tolerance {
				r.change(other.subflow)
			}
		}
		return
	}
	for _, l := range s.links {
		if r.holds(s, l) {
			s.bottleneck = l
			return
		}
	}
	r.change(s)
}

// holds reports whether a link is a bottleneck of a subflow.
func (r *rates) holds(s *subflow, l int) bool {
	at := &r.links[l]
	return at.load >= at.capacity-tolerance && s.level() >= at.most-tolerance
}

// share is the level that a link permits to subflows whose rates are open.
type share struct {
	level float64
	link  int
}

func (l *link) share(number int) share {
	return share{max(l.left, 0) / l.open, number}
}

// shares is a heap of shares, the smallest first.
type shares []share

func (s shares) Len() int           { return len(s) }
func (s shares) Less(i, j int) bool { return s[i].level < s[j].level }
func (s shares) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *shares) Push(x any)        { *s = append(*s, x.(share)) }
func (s *shares) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}
