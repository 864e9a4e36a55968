package experiment

import "time"

// The models of the dissertation, section 6.3.3, for links that are alike and control
// connections that are alike. Their T_http, the request to the controller, is left out: it is
// a part of what is measured beside them. Viewers stand at their gateway: l_egress and l_dr
// are 0.

// channelAt is L_i: when a channel that is led over a way of links is at the last switch of it,
// after the controller has begun: L_0 = c, L_i = max(L_i-1 + l, c).
func channelAt(hops int, control, link time.Duration) time.Duration {
	at := control
	for range hops {
		at = max(at+link, control)
	}
	return at
}

// joinModel is J_gc: L_sort - L_join where some switch has the channel, L_sort where none has.
func joinModel(act string, hops int, control, link time.Duration) time.Duration {
	switch act {
	case joinRemote:
		return channelAt(hops, control, link) - channelAt(0, control, link)
	case joinInitial, zapRemote:
		return channelAt(hops, control, link)
	}
	return control // one message to one switch, as for who leaves
}

// multicastModel is J_mc: twice the way to the router that has the group, which is the
// rendezvous point if no other has; and, if nobody watches, twice from there to the source.
// Who leaves is rid of it at once.
func multicastModel(act string, toGroup, toSource int, link time.Duration) time.Duration {
	switch act {
	case joinInitial, zapRemote:
		return 2 * time.Duration(toGroup+toSource) * link
	case joinRemote:
		return 2 * time.Duration(toGroup) * link
	}
	return 0
}
