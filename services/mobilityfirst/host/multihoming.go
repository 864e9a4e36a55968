package host

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/stream"
)

// maxPaths limits the paths that the frames of one stream use at one time.
const maxPaths = 4

// joinTimeout is how long after the first answer to a request further answers are used.
const joinTimeout = time.Second

// paths returns the paths of the stream, beginning with path.
func (o *outgoing) paths() []*path {
	if o.path == nil {
		return nil
	}
	return append([]*path{o.path}, o.morePaths...)
}

// uses reports whether the stream uses a path.
func (o *outgoing) uses(p *path) bool { return o.path == p || slices.Contains(o.morePaths, p) }

// findPath returns the first of the paths that matches, or nil.
func (o *outgoing) findPath(match func(*path) bool) *path {
	if p := o.path; p != nil && match(p) {
		return p
	}
	if i := slices.IndexFunc(o.morePaths, match); i >= 0 {
		return o.morePaths[i]
	}
	return nil
}

// pathTo returns the stream's path to a place, or nil.
func (o *outgoing) pathTo(at place) *path {
	return o.findPath(func(p *path) bool { return p.place == at })
}

// pathOf returns the path with this stream.Path, or nil.
func (o *outgoing) pathOf(c *stream.Path) *path {
	return o.findPath(func(p *path) bool { return p.streamPath == c })
}

// renewAt returns when paths have to be requested again. With several paths this is before the
// first of them ends, but at least half a lease after the last request.
func (o *outgoing) renewAt() time.Time {
	if !o.multihomed {
		return o.path.renewAt()
	}
	due := []time.Time{o.path.renewAt()}
	for _, p := range o.paths() {
		if p.tag == 0 {
			due = append(due, p.foundAt.Add(lease/2))
		} else {
			due = append(due, p.renewAt())
		}
	}
	return slices.MaxFunc([]time.Time{slices.MinFunc(due, time.Time.Compare), o.askedAt.Add(lease / 2)}, time.Time.Compare)
}

// dropExpired drops the paths that have expired.
func (o *outgoing) dropExpired(now time.Time) {
	for _, p := range slices.Clone(o.morePaths) {
		if !now.Before(p.expires) {
			o.dropPath(p, now)
		}
	}
	if o.path != nil && !now.Before(o.path.expires) {
		o.dropPath(o.path, now)
	}
}

// payload returns the number of chunk bytes in frames that every path can carry.
func (o *outgoing) payload() int {
	smallest := o.path.payload()
	for _, p := range o.morePaths {
		smallest = min(smallest, p.payload())
	}
	return smallest
}

// activate queues all paths of the stream, so that the stream sends the frames that it may send.
func (o *outgoing) activate() {
	if o.path != nil {
		o.path.link.activate(o.path)
	}
	for _, p := range o.morePaths {
		p.link.activate(p)
	}
}

// replacePath replaces the stream's path to the place of p by p, and reports whether there was one.
func (o *outgoing) replacePath(p *path) bool {
	old := o.pathTo(p.place)
	if old == nil {
		return false
	}
	p.stream, p.streamPath = o, old.streamPath
	if old == o.path {
		o.path = p
	} else {
		o.morePaths[slices.Index(o.morePaths, old)] = p
	}
	return true
}

// addPath adds a path from a further answer to a request that has been answered. The path has to
// lead to the same host, whose hellos have the same number on all its links. It has to use another
// of this host's links or another of the receiver's interfaces, and to carry frames as large as
// those of the stream. A place answers once, and soon: later repetitions are ignored.
func (o *outgoing) addPath(p *path, now time.Time) {
	if !o.multihomed || o.path == nil || p.number != o.answeredNumber || now.Sub(o.answeredAt) > joinTimeout {
		return
	}
	old := o.pathTo(p.place)
	if old != nil && !old.foundAt.Before(o.answeredAt) {
		return
	}
	p.mtu, p.renewal = o.initialMTU(p), renewalAfter(old)
	if !o.replacePath(p) {
		linkUsed, interfaceUsed := false, false // by other paths
		for _, other := range o.paths() {
			linkUsed, interfaceUsed = linkUsed || other.link == p.link, interfaceUsed || other.mac == p.mac
		}
		if linkUsed && interfaceUsed || len(o.morePaths)+1 >= maxPaths || p.payload() < o.sender.Payload {
			return
		}
		p.stream, p.streamPath = o, stream.NewPath()
		o.morePaths = append(o.morePaths, p)
		o.sender.Add(p.streamPath)
	}
	o.activate()
	o.schedule(now)
}

// dropPath removes a path from the stream.
func (o *outgoing) dropPath(p *path, now time.Time) {
	switch i := slices.Index(o.morePaths, p); {
	case i >= 0:
		o.morePaths = slices.Delete(o.morePaths, i, i+1)
	case p != o.path:
		return
	case len(o.morePaths) == 0:
		o.path, o.streamPath = nil, p.streamPath
		return
	default:
		o.path = o.morePaths[0]
		o.morePaths = slices.Delete(o.morePaths, 0, 1)
	}
	o.sender.Drop(p.streamPath, now)
	o.activate()
}

// dropMorePaths removes all paths but the first.
func (o *outgoing) dropMorePaths(now time.Time) {
	for _, p := range slices.Clone(o.morePaths) {
		o.dropPath(p, now)
	}
}

// dropLink removes the paths over a link, and requests another if there is something to send.
func (o *outgoing) dropLink(l *link, now time.Time) {
	dropped := false
	for _, p := range o.paths() {
		if p.link == l {
			o.dropPath(p, now)
			dropped = true
		}
	}
	if dropped && o.hasWork() {
		o.requestPath(now)
	}
	o.schedule(now)
}

// expire handles a receiver that has not answered by the sender's deadline.
func (o *outgoing) expire(now time.Time) {
	for _, c := range o.sender.Expire(now) {
		if p := o.pathOf(c); p != nil {
			if p.silences++; p.silences >= maxSilences {
				o.handleSilence(p, now)
			}
		}
	}
	o.activate()
}
