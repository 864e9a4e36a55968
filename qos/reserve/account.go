package reserve

// account is what stands in the book for one link, added up: a search of a path asks
// every link what it has left, and there may be thousands of promises.
type account struct {
	entries map[Key]*entry
	// young are the promises whose traffic is not known yet.
	young map[Key]*entry
	sums  sums
}

// sums are what promises add up to on a link, in bits per second.
type sums struct {
	// promised is their rates; counted the part of the link's use that is taken for
	// theirs, as what yields to them; seen the most that may be theirs.
	promised, counted, seen uint64
}

func (s sums) plus(o sums) sums {
	return sums{s.promised + o.promised, s.counted + o.counted, s.seen + o.seen}
}

func (s sums) minus(o sums) sums {
	return sums{s.promised - o.promised, s.counted - o.counted, s.seen - o.seen}
}

// on is what a promise adds on a link.
func (e *entry) on(l Link) sums {
	s := sums{promised: e.rates[l], counted: e.own(l), seen: e.most(l)}
	if s.promised == 0 {
		s.counted = s.seen
	}
	return s
}

func newAccount() *account { return &account{entries: map[Key]*entry{}, young: map[Key]*entry{}} }

func (a *account) enter(l Link, e *entry) {
	a.entries[e.promise.Key] = e
	a.sums = a.sums.plus(e.on(l))
	if e.seen.young() && e.rates[l] > 0 {
		a.young[e.promise.Key] = e
	}
}

// leave takes a promise out and reports whether none is left.
func (a *account) leave(l Link, e *entry) bool {
	a.sums = a.sums.minus(e.on(l))
	delete(a.entries, e.promise.Key)
	delete(a.young, e.promise.Key)
	return len(a.entries) == 0
}

// promised is what is promised to others than one.
func (a *account) promised(l Link, except Key) uint64 {
	if e := a.entries[except]; e != nil {
		return a.sums.promised - e.rates[l]
	}
	return a.sums.promised
}
