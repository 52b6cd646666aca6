# For tools/results-serve.sh and tools/results-namespaces.sh, which read it in: two network namespaces, $a and $b, with the addresses 10.77.0.1
# and 10.77.0.2, which a pair of veth joins; a token bucket (tbf) of $rate on either side.
a=astra-a-$$ b=astra-b-$$

make_network() {
  ip netns add "$a"
  ip netns add "$b"
  ip link add veth0 netns "$a" type veth peer name veth0 netns "$b"
  ip -n "$a" address add 10.77.0.1/24 dev veth0
  ip -n "$b" address add 10.77.0.2/24 dev veth0
  for space in "$a" "$b"; do
    ip -n "$space" link set lo up
    ip -n "$space" link set veth0 up
    tc -n "$space" qdisc add dev veth0 root tbf rate "$rate" burst 3000 latency 1s
  done
}

remove_network() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
}
