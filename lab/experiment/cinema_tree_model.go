package experiment

import "time"

// The functions below are the models of the dissertation, section 6.3.3, for links that are all
// alike and control connections that are all alike. They leave out T_http, the time of the request
// to the controller, because it is a part of what is measured. Viewers are at their gateway:
// l_egress and l_dr are 0.

// channelAt returns L_i: when a channel that takes a path of i links reaches the path's last switch
// after the controller has begun. L_0 = c, L_i = max(L_i-1 + l, c).
func channelAt(hops int, control, link time.Duration) time.Duration {
	at := control
	for range hops {
		at = max(at+link, control)
	}
	return at
}

// joinModel returns J_gc, which is L_sort - L_join if some switch has the channel, and L_sort if
// none has.
func joinModel(act string, hops int, control, link time.Duration) time.Duration {
	switch act {
	case joinRemote:
		return channelAt(hops, control, link) - channelAt(0, control, link)
	case joinInitial, zapRemote:
		return channelAt(hops, control, link)
	}
	return control // leaving takes one message to one switch
}

// multicastModel returns J_mc: twice the time to the router that has the group, which is the
// rendezvous point if no other has, and, if nobody watches, also twice the time from there to the
// source. Leaving takes effect at once.
func multicastModel(act string, toGroup, toSource int, link time.Duration) time.Duration {
	switch act {
	case joinInitial, zapRemote:
		return 2 * time.Duration(toGroup+toSource) * link
	case joinRemote:
		return 2 * time.Duration(toGroup) * link
	}
	return 0
}
