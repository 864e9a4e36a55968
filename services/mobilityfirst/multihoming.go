package mobilityfirst

import "slices"

// spread is to which places of a name a request goes from one of the places of whoever asks, where chunks may go by several
// ways: each of both names' places has one way at least, and as few as may be have more. A host takes further ways to the one
// that has answered first alone, if there are others with its name.
func (s *Service) spread(who end, to []end) []end {
	to = slices.DeleteFunc(to, func(e end) bool {
		if s.paths.there(who, e) {
			return false
		}
		_, is := s.Network.Topology().Path(who.At, e.At, s.Metric)
		return !is
	})
	slices.SortFunc(to, end.compare)
	own := s.names.interfaces(who)
	slices.SortFunc(own, end.compare)
	i := slices.Index(own, who)
	switch {
	case i < 0 || len(to) < 2:
		return to
	case len(to) < len(own):
		return to[i%len(to):][:1]
	}
	var mine []end
	for ; i < len(to); i += len(own) {
		mine = append(mine, to[i])
	}
	return mine
}
