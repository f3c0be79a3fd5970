// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asks BPF programs at the points where the kernel chooses folio sizes.
 *
 * A program is a raw tracepoint program that may write: it is attached to
 * lf_anon_order, lf_window or lf_around. An answer is a preference: what is not
 * possible is left out, or the kernel decides.
 */

#include <linux/fs.h>
#include <linux/largefolio/policy.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/page_counter.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/swap.h>
#include <linux/vmstat.h>

#define CREATE_TRACE_POINTS
#include <linux/largefolio/events.h>

/* area_flags */
enum {
	AREA_READ	= 1 << 0,
	AREA_WRITE	= 1 << 1,
	AREA_EXEC	= 1 << 2,
	AREA_SHARED	= 1 << 3,
	AREA_FILE	= 1 << 4,
	AREA_HUGEPAGE	= 1 << 5,
	AREA_NOHUGEPAGE	= 1 << 6,
	AREA_RANDOM	= 1 << 7,
	AREA_SEQUENTIAL	= 1 << 8,
};

/* access */
enum {
	ACCESS_LOAD = 1,
	ACCESS_STORE,
	ACCESS_FETCH,
};

bool lf_policy_answers(enum lf_point point)
{
	switch (point) {
	case LF_ANON_ORDER:
		return trace_lf_anon_order_enabled();
	case LF_WINDOW:
		return trace_lf_window_enabled();
	case LF_AROUND:
		return trace_lf_around_enabled();
	}
	return false;
}

static u64 area_flags(const struct vm_area_struct *vma)
{
	static const struct {
		unsigned long vm;
		u64 area;
	} flags[] = {
		{ VM_READ, AREA_READ },
		{ VM_WRITE, AREA_WRITE },
		{ VM_EXEC, AREA_EXEC },
		{ VM_SHARED, AREA_SHARED },
		{ VM_HUGEPAGE, AREA_HUGEPAGE },
		{ VM_NOHUGEPAGE, AREA_NOHUGEPAGE },
		{ VM_RAND_READ, AREA_RANDOM },
		{ VM_SEQ_READ, AREA_SEQUENTIAL },
	};
	u64 found = vma->vm_file ? AREA_FILE : 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(flags); i++)
		if (vma->vm_flags & flags[i].vm)
			found |= flags[i].area;
	return found;
}

/* The machine, and the cgroup of the task. */
static void add_memory(struct lf_context *context)
{
	struct zone *zone;
	unsigned int order;

	context->page_shift = PAGE_SHIFT;
	context->pmd_order = HPAGE_PMD_ORDER;
	context->nr_pages = totalram_pages();
	context->nr_free = global_zone_page_state(NR_FREE_PAGES);
	context->swap_free = get_nr_swap_pages();
	for_each_populated_zone(zone) {
		context->low += low_wmark_pages(zone);
		context->high += high_wmark_pages(zone);
		for (order = 0; order < min_t(unsigned int, NR_PAGE_ORDERS,
					      ARRAY_SIZE(context->free)); order++)
			/* An old number of free blocks is good enough. */
			context->free[order] += data_race(zone->free_area[order].nr_free);
	}
	context->group_max = ~0ULL;
	if (!mem_cgroup_disabled()) {
		struct mem_cgroup *group;

		rcu_read_lock();
		group = mem_cgroup_from_task(current);
		if (group && !mem_cgroup_is_root(group)) {
			unsigned long max = READ_ONCE(group->memory.max);

			if (max != PAGE_COUNTER_MAX)
				context->group_max = max;
			context->group_pages = page_counter_read(&group->memory);
		}
		rcu_read_unlock();
	}
}

static struct lf_fault fault_of(const struct vm_fault *vmf)
{
	const struct vm_area_struct *vma = vmf->vma;

	return (struct lf_fault){
		.area_start = vma->vm_start >> PAGE_SHIFT,
		.area_end = vma->vm_end >> PAGE_SHIFT,
		.area_flags = area_flags(vma),
		.page = vmf->address >> PAGE_SHIFT,
		.access = vmf->flags & FAULT_FLAG_WRITE ? ACCESS_STORE :
			  vmf->flags & FAULT_FLAG_INSTRUCTION ? ACCESS_FETCH :
			  ACCESS_LOAD,
		.index = vmf->pgoff,
	};
}

struct lf_fault lf_window_fault(struct vm_fault *vmf, enum lf_cause cause)
{
	struct lf_fault fault;

	if (!trace_lf_window_enabled())
		return (struct lf_fault){};
	fault = fault_of(vmf);
	fault.cause = cause;
	fault.was_asked = &vmf->_lf_has_window;
	return fault;
}

static void add_fault(struct lf_context *context, const struct lf_fault *fault)
{
	get_task_comm(context->comm, current);
	context->process = current->tgid;
	context->area_start = fault->area_start;
	context->area_end = fault->area_end;
	context->area_flags = fault->area_flags;
	context->page = fault->page;
	context->access = fault->access;
	add_memory(context);
}

static void add_file(struct lf_context *context, const struct lf_fault *fault,
		     struct file *file)
{
	struct address_space *mapping = file->f_mapping;

	context->index = fault->index;
	context->file_pages = DIV_ROUND_UP(i_size_read(mapping->host), PAGE_SIZE);
	context->min_order = mapping_min_folio_order(mapping);
	context->max_order = mapping_max_folio_order(mapping);
	context->ra_pages = file->f_ra.ra_pages;
	context->misses = READ_ONCE(file->f_ra.mmap_miss);
}

/* Asks the program of a point. Programs run one at a time on a CPU. */
static void ask(struct lf_question *question, enum lf_point point,
		const struct file *file)
{
	question->context.point = point;
	question->answer = LF_OWN;
	preempt_disable();
	switch (point) {
	case LF_ANON_ORDER:
		trace_lf_anon_order(question);
		break;
	case LF_WINDOW:
		trace_lf_window(question);
		break;
	case LF_AROUND:
		trace_lf_around(question);
		break;
	}
	trace_policy(question, file ? file->f_mapping->host : NULL);
	preempt_enable();
	if (question->answer == LF_OWN_OF_INT)
		question->answer = LF_OWN;
}

unsigned long lf_policy_anon_orders(struct vm_fault *vmf, unsigned long possible)
{
	struct lf_question question = {};

	if (!possible || !trace_lf_anon_order_enabled())
		return possible;
	if (!vmf->_lf_has_orders) {
		struct lf_fault fault = fault_of(vmf);

		add_fault(&question.context, &fault);
		question.context.orders = possible;
		ask(&question, LF_ANON_ORDER, NULL);
		vmf->_lf_has_orders = true;
		vmf->_lf_orders = question.has_window ? LF_OWN : question.answer;
	}
	return possible & vmf->_lf_orders;
}

unsigned long lf_policy_around(struct vm_fault *vmf, unsigned long own)
{
	struct lf_question question = {};
	struct lf_fault fault = fault_of(vmf);

	add_fault(&question.context, &fault);
	add_file(&question.context, &fault, vmf->vma->vm_file);
	question.context.own = own;
	ask(&question, LF_AROUND, vmf->vma->vm_file);
	if (question.has_window || !is_power_of_2(question.answer) ||
	    question.answer > PTRS_PER_PTE)
		return own;
	return question.answer;
}

/* Whether readahead can read the window in place of the kernel's. */
static bool can_read(const struct lf_context *context, struct lf_window window)
{
	u64 max = max(context->ra_pages, 2ULL << HPAGE_PMD_ORDER);
	u64 end;

	if (!window.nr_pages || window.nr_pages > max ||
	    window.nr_ahead > window.nr_pages ||
	    check_add_overflow(window.start, window.nr_pages, &end))
		return false;
	if (context->cause == LF_MARKER)
		return context->index < window.start &&
		       window.start < context->file_pages &&
		       window.start - context->index <= 2 * max;
	return window.start <= context->index && context->index < end;
}

bool lf_policy_window(const struct lf_fault *fault, struct file *file,
		      struct lf_window own, struct lf_window *window)
{
	struct lf_question question = {};
	struct lf_context *context = &question.context;

	add_fault(context, fault);
	add_file(context, fault, file);
	context->cause = fault->cause;
	context->own_start = own.start;
	context->own_pages = own.nr_pages;
	context->own_ahead = own.nr_ahead;
	context->own_order = own.order;
	ask(&question, LF_WINDOW, file);
	if (question.answer)
		return false;
	*window = question.window;
	if (!question.has_window) {
		window->nr_pages = 0;
		return true;
	}
	if (!memcmp(window, &own, sizeof(own)))
		return false;
	return can_read(context, *window);
}
