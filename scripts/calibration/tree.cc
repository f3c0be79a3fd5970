// A map of words to counts and a sorted vector: nodes all over the heap.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

int main() {
    std::unordered_map<std::uint64_t, std::string> names;
    std::map<std::uint64_t, std::uint64_t> counts;
    std::uint64_t state = 88172645463325252u;
    auto next = [&] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    };
    for (int i = 0; i < 150000; i++) {
        const std::uint64_t key = next() % 200000;
        names.emplace(key, std::string(20 + key % 40, 'x'));
        counts[key * 7919 % 100003] += names[key].size();
    }
    std::vector<std::uint64_t> order;
    for (const auto& [key, count] : counts) order.push_back(count << 32 | key);
    std::sort(order.begin(), order.end());
    std::printf("%zu %zu %lu\n", names.size(), order.size(), (unsigned long)order[order.size() / 2]);
}
