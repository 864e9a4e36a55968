package mobilityfirst

import "slices"

// spread returns the places of a name that a request from one of the source's places is sent to
// when chunks may use several paths. It gives each place of both names at least one path, and as
// few places as possible more than one. If a name has several hosts, a host only adds paths to the
// host that has answered first.
func (s *Service) spread(src endpoint, to []endpoint) []endpoint {
	to = slices.DeleteFunc(to, func(e endpoint) bool {
		if s.paths.exists(src, e) {
			return false
		}
		_, ok := s.Network.Topology().Path(src.At, e.At, s.Metric)
		return !ok
	})
	slices.SortFunc(to, endpoint.compare)
	own := s.names.interfaces(src)
	slices.SortFunc(own, endpoint.compare)
	i := slices.Index(own, src)
	switch {
	case i < 0 || len(to) < 2:
		return to
	case len(to) < len(own):
		return to[i%len(to):][:1]
	}
	var mine []endpoint
	for ; i < len(to); i += len(own) {
		mine = append(mine, to[i])
	}
	return mine
}
