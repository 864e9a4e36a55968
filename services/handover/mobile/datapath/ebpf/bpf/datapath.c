// The two programs of the datapath, for the clsact hooks of tc:
//
//   vni_tx  at the egress of the VNI: rewrites and sends by the chosen interface
//   nic_rx  at the ingress of each interface: filters, rewrites, hands to the VNI
//
// Each interface has its own copy of nic_rx, with its own constants. What may
// change is in one element of one map, so that a switch is one update. Only MAC
// addresses are touched: checksums of TCP and UDP, partial ones too, and GSO
// stay as they are.
//
// No helper in use is reserved for GPL programs, so there is no licence section.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_INTERFACES 16
#define UNSENT MAX_INTERFACES // the counters of frames that found no way out

#define ARP_SHA (ETH_HLEN + 8)
#define ARP_THA (ETH_HLEN + 18)
#define IPV6_HLEN 40
#define ICMPV6 (ETH_HLEN + IPV6_HLEN)
#define ICMPV6_CSUM (ICMPV6 + 2)
#define NEXT_ICMPV6 58
#define ND_OPTIONS 8 // at most so many are looked at
#define DHCP_CLIENT 68

// Of the connections that sent last, the last segment with payload and the last one
// without are kept. Two connections may share a place: then the later one has it.
#define TAILS 256 // half of them for payload
#define TAIL_HEAD 96
#define TAIL_DATA 1504
#define TCP (ETH_HLEN + 20)

// Copies of a packet by different ways arrive within this time of each other; by an
// interface that the device has left, within the time for which it may be listened to.
// What the interface in use brings later is a repetition by the sender.
#define COPIES_NS 500000000ull
#define LATE_NS 11000000000ull
#define BEING_REPLACED 0 // in place of a time, by the one who delivers

// choice is what Use decides.
struct choice {
	__u32 send;    // interface index; 0: nowhere
	__u32 slot;    // its counters
	__u32 receive; // a bit for each slot
	__u8 mac[ETH_ALEN];
	__u8 merge; // there are several interfaces that may bring the same packet
	__u8 pad;
};

struct counters {
	__u64 sent, sent_bytes, received, received_bytes;
	__u64 inactive, foreign, doubled;
	__u64 heard, heard_at;
};

// copies says how often a packet came by each interface. Senders do repeat
// packets bit by bit, so it is delivered as often as the interface that brought
// it most often has brought it.
struct copies {
	__u64 born;
	__u32 delivered;
	__u32 count[MAX_INTERFACES];
	__u32 pad;
};

// segment is the last one of a TCP connection that left, with its headers: of what an
// interface will cut to size, the last piece.
struct segment {
	__u32 head, data; // bytes
	__u32 skip;	  // bytes of payload before data
	__u32 pad;
	__u64 at;
	__u8 bytes[TAIL_HEAD + TAIL_DATA];
};

struct tail {
	struct bpf_spin_lock lock;
	__u32 pad;
	struct segment s;
};

// A hash map, because it replaces an element as a whole: a program sees the old
// choice or the new one. An array's element would be written in place.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct choice);
} choices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_INTERFACES + 1);
	__type(key, __u32);
	__type(value, struct counters);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct copies);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TAILS);
	__type(key, __u32);
	__type(value, struct tail);
} tails SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct segment);
} scratch SEC(".maps");

volatile const __u32 vni_index;
volatile const __u8 vni_mac[ETH_ALEN];
volatile const __u8 nic_mac[ETH_ALEN]; // of the interface this copy of nic_rx is for
volatile const __u32 nic_slot;
volatile const __u64 seed; // so that nobody outside can make two packets look alike

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5];
}

static __always_inline void constant_mac(__u8 *to, const volatile __u8 *from)
{
	for (int i = 0; i < ETH_ALEN; i++)
		to[i] = from[i];
}

static __always_inline struct choice *current_choice(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&choices, &key);
}

static __always_inline struct counters *counters_of(__u32 slot)
{
	return bpf_map_lookup_elem(&stats, &slot);
}

// replace_mac writes to at offset if from is there.
static __always_inline void replace_mac(struct __sk_buff *skb, __u32 offset, const __u8 *from, const __u8 *to)
{
	__u8 found[ETH_ALEN];

	if (bpf_skb_load_bytes(skb, offset, found, ETH_ALEN) == 0 && same_mac(found, from))
		bpf_skb_store_bytes(skb, offset, to, ETH_ALEN, 0);
}

// rewrite_nd replaces the link-layer address options of neighbour discovery and
// corrects the checksum.
static __always_inline void rewrite_nd(struct __sk_buff *skb, const __u8 *from, const __u8 *to)
{
	__u8 next, type;
	__u32 at;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + 6, &next, 1) < 0 || next != NEXT_ICMPV6)
		return;
	if (bpf_skb_load_bytes(skb, ICMPV6, &type, 1) < 0)
		return;
	switch (type) {
	case 133: // router solicitation
		at = ICMPV6 + 8;
		break;
	case 134: // router advertisement
		at = ICMPV6 + 16;
		break;
	case 135: // neighbour solicitation
	case 136: // neighbour advertisement
		at = ICMPV6 + 24;
		break;
	default:
		return;
	}
	for (int i = 0; i < ND_OPTIONS; i++) {
		__u8 old[8], new[8];

		if (bpf_skb_load_bytes(skb, at, old, sizeof(old)) < 0 || old[1] == 0)
			return;
		if ((old[0] == 1 || old[0] == 2) && old[1] == 1 && same_mac(old + 2, from)) {
			new[0] = old[0];
			new[1] = old[1];
			__builtin_memcpy(new + 2, to, ETH_ALEN);
			__s64 change = bpf_csum_diff((__be32 *)old, sizeof(old), (__be32 *)new, sizeof(new), 0);
			bpf_skb_store_bytes(skb, at, new, sizeof(new), BPF_F_RECOMPUTE_CSUM);
			bpf_l4_csum_replace(skb, ICMPV6_CSUM, 0, change, 0);
		}
		at += old[1] * 8;
	}
}

// mix is a step of a hash.
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

// load_segment reads what is to be kept of a TCP segment; it says 0 if it is none, or
// too large to be kept.
static __always_inline int load_segment(struct __sk_buff *skb, struct segment *s)
{
	__u32 head, data, skip = 0, size = skb->gso_size;
	__u8 *b = s->bytes;

	if (bpf_skb_load_bytes(skb, 0, b, TCP + 20) < 0)
		return 0;
	if (b[ETH_HLEN] != 0x45 || b[ETH_HLEN + 9] != IPPROTO_TCP || (b[ETH_HLEN + 6] & 0x3f) || b[ETH_HLEN + 7])
		return 0;
	head = TCP + (b[TCP + 12] >> 4) * 4;
	if (head < TCP + 20 || head > TAIL_HEAD || skb->len < head)
		return 0;
	data = skb->len - head;
	if (size && data > size) {
		skip = (data - 1) / size * size;
		data -= skip;
	}
	s->head = head;
	s->data = data;
	s->skip = skip;
	s->at = bpf_ktime_get_ns();
	barrier_var(head);
	if (head < TCP + 20 || head > TAIL_HEAD || bpf_skb_load_bytes(skb, 0, b, head) < 0)
		return 0;
	if (data == 0)
		return 1;
	barrier_var(data);
	return data >= 1 && data <= TAIL_DATA && bpf_skb_load_bytes(skb, head + skip, b + TAIL_HEAD, data) == 0;
}

// keep_tail keeps a TCP segment in the place of the one before it.
static __always_inline void keep_tail(struct __sk_buff *skb)
{
	__u32 zero = 0, flow[3], place;
	struct segment *s = bpf_map_lookup_elem(&scratch, &zero);

	if (!s || !load_segment(skb, s) || bpf_skb_load_bytes(skb, ETH_HLEN + 12, flow, sizeof(flow)) < 0)
		return;
	place = mix(mix(seed, flow[0] | (__u64)flow[1] << 32), flow[2]) % (TAILS / 2);
	if (s->data)
		place += TAILS / 2;
	struct tail *t = bpf_map_lookup_elem(&tails, &place);
	if (!t)
		return;
	const volatile __u64 *from = (const volatile __u64 *)s;
	volatile __u64 *to = (volatile __u64 *)&t->s;
	__u32 words = (__builtin_offsetof(struct segment, bytes) + TAIL_HEAD + s->data + 7) / 8;
	bpf_spin_lock(&t->lock);
	for (__u32 i = 0; i < sizeof(struct segment) / 8 && i < words; i++)
		to[i] = from[i];
	bpf_spin_unlock(&t->lock);
}

SEC("tc")
int sluice_vni_tx(struct __sk_buff *skb)
{
	struct choice *now = current_choice();
	struct counters *n;
	struct ethhdr eth;
	__u8 vni[ETH_ALEN], nic[ETH_ALEN];

	if (!now || now->send == 0 || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) < 0) {
		n = counters_of(UNSENT);
		if (n)
			n->sent++;
		return TC_ACT_STOLEN; // lost, but no error that an application would see
	}
	__u32 out = now->send;
	n = counters_of(now->slot);
	__builtin_memcpy(nic, now->mac, ETH_ALEN);
	constant_mac(vni, vni_mac);
	if (now->merge && eth.h_proto == bpf_htons(ETH_P_IP))
		keep_tail(skb);

	bpf_skb_store_bytes(skb, ETH_ALEN, nic, ETH_ALEN, 0);
	if (eth.h_proto == bpf_htons(ETH_P_ARP)) {
		bpf_skb_store_bytes(skb, ARP_SHA, nic, ETH_ALEN, 0);
		replace_mac(skb, ARP_THA, vni, nic);
	} else if (eth.h_proto == bpf_htons(ETH_P_IPV6)) {
		rewrite_nd(skb, vni, nic);
	}
	if (n) {
		n->sent++;
		n->sent_bytes += skb->len;
	}
	return bpf_redirect(out, 0);
}

// is_dhcp recognises what a DHCP server sends to a client: the daemon reads it
// with a packet socket, and the VNI's stack would only answer with an error.
static __always_inline int is_dhcp(struct __sk_buff *skb)
{
	__u8 ip[20];
	__be16 port;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(ip)) < 0)
		return 0;
	if (ip[9] != IPPROTO_UDP || (ip[6] & 0x1f) != 0 || ip[7] != 0)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + (ip[0] & 0xf) * 4 + 2, &port, sizeof(port)) < 0)
		return 0;
	return port == bpf_htons(DHCP_CLIENT);
}

// load reads n bytes, at most 64. The verifier has to see the bounds on the very
// register, which the compiler would otherwise derive from another.
static __always_inline int load(struct __sk_buff *skb, __u32 offset, void *to, __u32 n)
{
	barrier_var(n);
	if (n < 1 || n > 64)
		return -1;
	return bpf_skb_load_bytes(skb, offset, to, n);
}

// fingerprint is a hash of what the ways a packet takes leave alone: not of the
// traffic class and ECN, the hop limit, and the checksum over them, and not of
// the padding after a short packet. 0 means that the packet has none.
static __always_inline __u64 fingerprint(struct __sk_buff *skb, __be16 protocol)
{
	__u64 words[8] = {};
	__u8 *ip = (__u8 *)words;
	__be16 length;
	__u32 n = sizeof(words);

	if (protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + 2, &length, sizeof(length)) < 0)
			return 0;
		if (bpf_ntohs(length) < n)
			n = bpf_ntohs(length);
		if (n < 20 || load(skb, ETH_HLEN, words, n) < 0)
			return 0;
		ip[1] = ip[8] = ip[10] = ip[11] = 0;
	} else {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + 4, &length, sizeof(length)) < 0)
			return 0;
		if (bpf_ntohs(length) + IPV6_HLEN < n)
			n = bpf_ntohs(length) + IPV6_HLEN;
		if (n < IPV6_HLEN || load(skb, ETH_HLEN, words, n) < 0)
			return 0;
		ip[0] = ip[1] = ip[7] = 0;
	}
	__u64 hash = seed;
	for (int i = 0; i < 8; i++)
		hash = mix(hash, words[i]);
	return hash | 1;
}

// is_copy says whether another interface has brought the packet first. Two
// processors may handle two copies at once; the one whose exchange succeeds
// delivers. One that has read the clock first may look last, and then finds a
// packet that is younger than its own time.
static __always_inline int is_copy(__u64 key, __u64 within)
{
	__u64 now = bpf_ktime_get_ns(), born;
	__u32 slot = nic_slot & (MAX_INTERFACES - 1);
	struct copies *c = bpf_map_lookup_elem(&seen, &key);

	born = c ? *(volatile __u64 *)&c->born : 0;
	if (c && born == BEING_REPLACED)
		return 1;
	if (!c || (__s64)(now - born) > (__s64)within) {
		struct copies fresh = {.born = now, .delivered = 1};

		if (c && __sync_val_compare_and_swap(&c->born, born, BEING_REPLACED) != born)
			return 1;
		fresh.count[slot] = 1;
		if (bpf_map_update_elem(&seen, &key, &fresh, c ? BPF_ANY : BPF_NOEXIST) == 0)
			return 0;
		if (c) {
			c->born = now;
			return 0;
		}
		c = bpf_map_lookup_elem(&seen, &key);
		if (!c)
			return 0;
	}
	__u32 count = __sync_fetch_and_add(&c->count[slot], 1) + 1;
	__u32 delivered = c->delivered;
	if (count <= delivered)
		return 1;
	return __sync_val_compare_and_swap(&c->delivered, delivered, count) != delivered;
}

// for_device says whether the frame is addressed to the interface or to a
// group, and is not one of our own come back.
static __always_inline int for_device(struct ethhdr *eth, const __u8 *nic)
{
	return !same_mac(eth->h_source, nic) && ((eth->h_dest[0] & 1) || same_mac(eth->h_dest, nic));
}

// tells_life says whether the frame is an IPv4 packet for this interface alone, and
// not one of those that probes are made of.
static __always_inline int tells_life(struct __sk_buff *skb, struct ethhdr *eth)
{
	__u8 protocol;

	return eth->h_proto == bpf_htons(ETH_P_IP) && !(eth->h_dest[0] & 1) &&
	       bpf_skb_load_bytes(skb, ETH_HLEN + 9, &protocol, 1) == 0 && protocol != IPPROTO_ICMP;
}

// of_link says whether the frame concerns the link and not the address on it.
static __always_inline int of_link(struct ethhdr *eth)
{
	return eth->h_proto == bpf_htons(ETH_P_PAE) ||
	       (eth->h_dest[0] == 0x01 && eth->h_dest[1] == 0x80 && eth->h_dest[2] == 0xc2 &&
		eth->h_dest[3] == 0 && eth->h_dest[4] == 0 && eth->h_dest[5] < 0x10);
}

SEC("tc")
int sluice_nic_rx(struct __sk_buff *skb)
{
	struct choice *now = current_choice();
	struct counters *n = counters_of(nic_slot);
	struct ethhdr eth;
	__u8 vni[ETH_ALEN], nic[ETH_ALEN];

	if (!n || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) < 0)
		return TC_ACT_SHOT;
	if (of_link(&eth))
		return TC_ACT_UNSPEC; // the interface's own stack and other programs may have it
	if (!now || !(now->receive & (1u << (nic_slot & 31)))) {
		n->inactive++;
		return TC_ACT_SHOT;
	}
	constant_mac(nic, nic_mac);
	constant_mac(vni, vni_mac);
	if (!for_device(&eth, nic)) {
		n->foreign++;
		return TC_ACT_SHOT;
	}
	if (eth.h_proto == bpf_htons(ETH_P_IP) && is_dhcp(skb))
		return TC_ACT_SHOT;
	if (tells_life(skb, &eth)) {
		n->heard++;
		n->heard_at = bpf_ktime_get_ns();
	}
	if (now->merge && (eth.h_proto == bpf_htons(ETH_P_IP) || eth.h_proto == bpf_htons(ETH_P_IPV6))) {
		__u64 key = fingerprint(skb, eth.h_proto);

		if (key && is_copy(key, nic_slot == now->slot ? COPIES_NS : LATE_NS)) {
			n->doubled++;
			return TC_ACT_SHOT;
		}
	}
	if (!(eth.h_dest[0] & 1))
		bpf_skb_store_bytes(skb, 0, vni, ETH_ALEN, 0);
	if (eth.h_proto == bpf_htons(ETH_P_ARP))
		replace_mac(skb, ARP_THA, nic, vni);
	n->received++;
	n->received_bytes += skb->len;
	return bpf_redirect(vni_index, BPF_F_INGRESS);
}
