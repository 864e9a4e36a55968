package flowsim

import "container/heap"

// tolerance is how far sums may be from what they should be, as a part of a link.
const tolerance = 1e-9

// subflow is a part of a transfer that goes one way.
type subflow struct {
	of     *transfer
	number int
	links  []int
	places []int   // where it stands among the subflows of each of its links
	weight float64 // of its rate among those that it shares links with
	rate   float64
	// bottleneck is a link that is full and on which none has more.
	bottleneck int

	carried float64 // until since
	since   float64

	changing, settled bool // while rates are found
}

// link is one that subflows share. most is the highest level on it.
type link struct {
	capacity   float64
	subflows   []stand
	load, most float64

	carried float64 // until since
	since   float64

	touched bool // while rates are found
	left    float64
	open    float64 // weights of those whose rates are open
	waiting int     // and how many they are
}

// stand is a subflow on a link: which of its links that is, too.
type stand struct {
	*subflow
	which int
}

// rates are those of subflows on links.
type rates struct {
	links []link
	now   float64
	// dirty are links whose rates may be wrong; changing are subflows whose rates are found anew.
	dirty    []int
	changing []*subflow
	shares   shares
	// changed is told of each subflow before its rate changes.
	changed func(*subflow)
}

// enter adds a subflow to its links. Its rate is zero until settle is called.
func (r *rates) enter(s *subflow) {
	s.places = make([]int, len(s.links))
	for i, l := range s.links {
		at := &r.links[l]
		s.places[i] = len(at.subflows)
		at.subflows = append(at.subflows, stand{s, i})
	}
	s.since = r.now
	r.change(s)
}

// weigh gives a subflow another weight.
func (r *rates) weigh(s *subflow, weight float64) {
	if s.weight != weight {
		r.change(s)
		s.weight = weight
	}
}

// leave takes a subflow from its links.
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

// settle finds the rates after subflows have come or gone. It begins with those that are new,
// and takes in whoever has lost its bottleneck by what they have got, or has more than others
// get on their bottleneck, until nobody else is concerned: far away from a change most rates
// stay as they are.
func (r *rates) settle() {
	for {
		r.fill()
		before := len(r.changing)
		r.measure()
		for _, l := range r.dirty {
			for _, s := range r.links[l].subflows {
				r.judge(s.subflow)
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

// touch notes that what a link carries will change.
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

// change has a subflow's rate found anew.
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

// level is the subflow's rate for its weight, which is what is fair.
func (s *subflow) level() float64 { return s.rate / s.weight }

func (s *subflow) advance(now float64) {
	s.carried += s.rate * (now - s.since)
	s.since = now
}

// fill raises the rates that change, by their weights, until the links of each are full (progressive
// filling). All other rates stay.
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
		case now.level > least.level: // others have settled for less meanwhile
			r.shares[0] = now
			heap.Fix(&r.shares, 0)
		default:
			heap.Pop(&r.shares)
			for _, s := range at.subflows {
				if s.changing && !s.settled {
					r.fix(s.subflow, least)
				}
			}
		}
	}
}

// fix gives a subflow its share of a link.
func (r *rates) fix(s *subflow, at share) {
	s.settled, s.rate, s.bottleneck = true, at.level*s.weight, at.link
	for _, l := range s.links {
		r.links[l].left -= s.rate
		r.links[l].open -= s.weight
		r.links[l].waiting--
	}
}

// measure adds up what the links carry whose rates have changed.
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

// judge looks whether a subflow still has a bottleneck. If not, what changes is its own rate; or,
// if that has just been found, that of those who have more there than it.
func (r *rates) judge(s *subflow) {
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

// holds says whether a link is a bottleneck of a subflow.
func (r *rates) holds(s *subflow, l int) bool {
	at := &r.links[l]
	return at.load >= at.capacity-tolerance && s.level() >= at.most-tolerance
}

// share is the level that a link gives to those whose rates are open.
type share struct {
	level float64
	link  int
}

func (l *link) share(number int) share {
	return share{max(l.left, 0) / l.open, number}
}

// shares are ordered, the least first; a heap.
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
