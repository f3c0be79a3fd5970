// SPDX-License-Identifier: GPL-2.0-only
/* Which files are collapsed, and the protocol with writers (file_thp.h). */

#include <linux/fs.h>
#include <linux/init.h>
#include <linux/largefolio/file_thp.h>
#include <linux/largefolio/largefolio.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rwsem.h>
#include <linux/shmem_fs.h>

enum {
	LF_FILES_LARGE_FOLIOS,	/* the kernel's rule */
	LF_FILES_ABSENT,
	LF_FILES_DENY_WRITE,
	LF_FILES_EXEC,
	LF_FILES_READERS,
};

static const char *const lf_file_rules[] = {
	"large-folios", "absent", "deny-write", "exec", "readers", NULL
};

static unsigned long lf_file_rule = LF_FILES_LARGE_FOLIOS;

bool lf_has_file_rule(void)
{
	return READ_ONCE(lf_file_rule) != LF_FILES_LARGE_FOLIOS;
}

bool lf_file_may_collapse(const struct vm_area_struct *vma)
{
	const struct inode *inode;

	if (!vma->vm_file || HPAGE_PMD_ORDER > MAX_PAGECACHE_ORDER)
		return false;
	inode = file_inode(vma->vm_file);
	if (IS_ANON_FILE(inode) || !S_ISREG(inode->i_mode))
		return false;

	switch (READ_ONCE(lf_file_rule)) {
	case LF_FILES_DENY_WRITE:
		return atomic_read(&inode->i_writecount) < 0;
	case LF_FILES_EXEC:
		return (vma->vm_flags & VM_EXEC) && !inode_is_open_for_write(inode);
	case LF_FILES_READERS:
		return !inode_is_open_for_write(inode);
	case LF_FILES_LARGE_FOLIOS:	/* set since lf_has_file_rule() */
		return mapping_pmd_folio_support(vma->vm_file->f_mapping);
	default:
		return false;
	}
}

static bool lf_is_gated(const struct address_space *mapping)
{
	return !mapping_large_folio_support(mapping) && !shmem_mapping(mapping);
}

/* Shared by collapses; an open for writing that drops a page cache excludes them. */
static DECLARE_RWSEM(lf_collapses);

bool lf_begin_collapse(struct address_space *mapping)
{
	if (!lf_is_gated(mapping))
		return false;
	down_read(&lf_collapses);
	return true;
}

void lf_end_collapse(bool has_begun)
{
	if (has_begun)
		up_read(&lf_collapses);
}

bool lf_add_thp(struct address_space *mapping, bool *is_counted)
{
	*is_counted = lf_is_gated(mapping);
	if (!*is_counted)
		return true;
	lockdep_assert_held_read(&lf_collapses);
	atomic_inc(&mapping->lf_nr_thps);
	/* Pairs with the barrier of an open for writing: get_write_access(). */
	smp_mb();
	/* Earlier writers' data, which that open would lose. */
	if (inode_is_open_for_write(mapping->host) ||
	    filemap_write_and_wait(mapping)) {
		lf_remove_thp(mapping);
		*is_counted = false;
	}
	return *is_counted;
}

void lf_remove_thp(struct address_space *mapping)
{
	atomic_dec(&mapping->lf_nr_thps);
}

void lf_folio_removed(struct address_space *mapping, const struct folio *folio)
{
	if (folio_test_large(folio) && lf_is_gated(mapping))
		lf_remove_thp(mapping);
}

void lf_folio_split(struct address_space *mapping, const struct folio *folio,
		    unsigned int new_order)
{
	int nr_parts = new_order ? 1 << (folio_order(folio) - new_order) : 0;

	if (lf_is_gated(mapping))
		atomic_add(nr_parts - 1, &mapping->lf_nr_thps);
}

bool lf_splits_uniformly(const struct folio *folio)
{
	return !folio_test_anon(folio) && folio->mapping &&
	       lf_is_gated(folio->mapping);
}

void lf_file_opened(struct file *file)
{
	struct address_space *mapping = file->f_mapping;

	/* The atomic_t of get_write_access() is a full barrier: see lf_add_thp(). */
	if (!(file->f_mode & FMODE_WRITE) || !atomic_read(&mapping->lf_nr_thps))
		return;
	down_write(&lf_collapses);
	filemap_invalidate_lock(mapping);
	/*
	 * If another writer's open dropped them or a collapse gave up, what is
	 * cached now can be dirty.
	 */
	if (atomic_read(&mapping->lf_nr_thps)) {
		unmap_mapping_range(mapping, 0, 0, 0);
		truncate_inode_pages(mapping, 0);
	}
	filemap_invalidate_unlock(mapping);
	up_write(&lf_collapses);
}

LF_SETTING(file_collapse, lf_file_rules, &lf_file_rule, NULL);

static int __init lf_file_thp_init(void)
{
	return lf_setting_add(&lf_setting_file_collapse);
}
late_initcall(lf_file_thp_init);
