package mobilityfirst

import "slices"

// spread selects the places of a name to which a request is sent when chunks may use several paths.
// src is one place of the requesting host, and to holds the places of the name. The requests from
// all places of the host together give each place of both names at least one path, and as few
// places as possible more than one. If a name has several hosts, the requesting host adds only
// paths to the host that has answered first.
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
